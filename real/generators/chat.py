"""A chat with the client that openapi-python-client made of openapi.json, on each surface of /v1."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "python"))

from tollgate_client import AuthenticatedClient, models
from tollgate_client.api.messages import create_message
from tollgate_client.api.openai import create_chat_completion, create_response

client = AuthenticatedClient(base_url=os.environ["URL"], token=os.environ["KEY"])
user = {"role": "user", "content": "Hi"}

chat = models.ChatCompletionRequest.from_dict({"model": "m", "messages": [user]})
print(create_chat_completion.sync(client=client, body=chat).choices[0].message.content)
response = models.ResponseRequest.from_dict({"model": "m", "input": "Hi"})
print(create_response.sync(client=client, body=response).output[0].content[0].text)
message = models.MessagesRequest.from_dict({"model": "m", "max_tokens": 8, "messages": [user]})
print(create_message.sync(client=client, body=message).content[0].text)
